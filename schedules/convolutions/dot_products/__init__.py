"""Convolutions by instructions that add several products to each sum."""
