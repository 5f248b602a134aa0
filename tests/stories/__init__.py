"""Whole journeys with the real parts."""
