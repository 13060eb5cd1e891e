"""What `neocpu reduce` is asked, writes and tells."""
