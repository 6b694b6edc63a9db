"""Fonts of pictures."""
