"""Object stores: runs, corpora and text under s3://, gs:// and every other address that fsspec supports."""
