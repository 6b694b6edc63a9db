"""Pages of the studio: a class for each page, an object for each browser tab."""
