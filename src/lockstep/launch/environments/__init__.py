"""Who started this process: schedulers, clouds and MPI say it in environment variables, each in its own."""
