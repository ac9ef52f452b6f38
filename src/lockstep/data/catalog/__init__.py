"""The catalog of known corpora: where they come from, and how they are downloaded and made."""
