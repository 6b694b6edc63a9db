"""Elements of pages: layout, panel of settings, cards, charts."""
