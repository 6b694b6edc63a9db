"""What plans cost in privacy: in a round, in a run, and over its rounds."""
