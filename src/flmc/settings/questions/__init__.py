"""Questions about settings that take many plans: inverse ones, suggestions, and maps of regimes."""
