"""The report of a reproduction: its pictures, its words, and the pages that hold both."""
