"""What pages are made of: frame, panel of controls, cards with charts, style, and their export."""
