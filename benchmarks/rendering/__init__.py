"""From the JSON of the suite to what people see."""
