"""The protocol inside Flower: messages of parties carried by Flower messages. Needs `pip install tpmdp[flower]`."""
