"""What a plan chooses where it is asked to: clip, link, slope and rounds, and the two stages of a
plan whose second one works in coordinates that the first one found."""
