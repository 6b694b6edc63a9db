"""Searches over settings: which link, slope, clip, rounds or SNR would do, judged by prediction."""
