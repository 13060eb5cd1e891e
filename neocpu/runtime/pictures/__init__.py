"""Pictures in files, as inputs take them."""
