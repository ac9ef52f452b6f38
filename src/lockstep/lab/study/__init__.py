"""Scaling studies: measure how training scales, and attribute lost speed-up to causes."""
