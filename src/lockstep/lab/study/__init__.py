"""The scaling study: a matrix of settings, measured in turns, and where the speed-up that is missing went."""
