"""The measurements of ``neocpu bench``: a package for each view, and those that views share."""
