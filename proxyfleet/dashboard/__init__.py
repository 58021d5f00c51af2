"""The admin's index: what an operator wants to see first, put together from every part of the product."""
