"""What `neocpu reduce` writes and tells."""
