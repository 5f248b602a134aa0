"""What runs inside a hermes-agent release: its own classes make homes and hold them open.

Only the standard library, this package and Hermes itself may be imported here. Nothing is assumed
of a release: a method or module that it lacks is simply not used.
"""
