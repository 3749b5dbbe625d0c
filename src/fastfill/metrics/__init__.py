"""CMC, mAP, recall, nDCG, agreement: exact ranks, one pass for a whole curve."""
