"""What is learned: data and model together, their loss and their metric."""
