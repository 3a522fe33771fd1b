"""Tests of clusters that span machines: network namespaces with addresses of their own (`lan`). They need root."""
