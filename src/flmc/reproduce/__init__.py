"""The published figures, the claims made of them one by one, and what a better design gains."""
