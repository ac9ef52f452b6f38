"""All-reduce among workers that may die and come back, on torchft."""
