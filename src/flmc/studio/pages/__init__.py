"""Pages of the studio: each page has a class, and each browser tab an object of it."""
