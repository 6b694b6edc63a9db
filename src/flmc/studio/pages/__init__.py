"""Pages of the studio, one class each; an object is the page in one browser tab."""
