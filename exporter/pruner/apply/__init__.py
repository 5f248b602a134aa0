"""Execute prune plans and undo them: one remover for each kind of thing."""
