"""Sharded training on FSDP2."""
