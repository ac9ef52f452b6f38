"""The phase clock, the journal and where a person sees them."""
