"""The campaign: a state machine mixes everything that can happen to homes, and a model of its own
checks after each step that nothing living was harmed and nothing was lost.

- `model.py`: who is on what, and what must hold; written from the promises, not from the code.
- `machine.py`: the steps, drawn from a seed; a script of steps can be run again and made shorter.
- `made_up.py`: the fast stage. Databases, journals and trash are real, and so is the code that
  decides and acts; processes, clocks and the boot are made up.
- `real.py`: the real stage. Hermes processes, agents and commands are real.
- `mutations.py`: mistakes planted in the product, each of which the short form must find.
"""
