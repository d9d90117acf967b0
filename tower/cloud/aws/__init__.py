"""Amazon Web Services: instances of EC2, and keys by EC2 Instance Connect."""
