"""Tests under a kernel of their own, in a virtual machine: what takes cgroups of version 2 alone (`make kernel`)."""
