"""What the controller and node daemons tell each other.

`launch`     what the controller orders: launches, signals, terminations
`reports`    what a node daemon reports
`branches`   which daemon forwards an order to which
"""
