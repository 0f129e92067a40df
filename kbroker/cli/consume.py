def consume():
    pass
