"""Local costs of many data sets, in little memory."""
