"""The proof, from the journal, of which samples a run was trained on."""
