"""The rules: DataFrame in, DataFrame out."""
