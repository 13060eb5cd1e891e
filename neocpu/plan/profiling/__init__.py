"""The time that each operator of a running artifact takes."""
