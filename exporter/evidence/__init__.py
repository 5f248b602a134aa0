"""What the kernel can prove about processes: who runs, what they have open, which locks they hold.

The agent asks with its own privileges (`survey`); a worker asks about locks alone, as the owner of
a home and while it has no connection open (`probe`, `opening`). Each answer is a proof of life, a
proof of death, or the admission that this place is too dark to tell (`Blindness`).
"""
