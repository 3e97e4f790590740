"""Seconds that requests and answers may take, where more than one place has to agree about them."""

REQUEST = 3.0
"""For a question to the backend that somebody waits for."""
LOOK = 5.0
"""For one that only explains a conflict."""
RELEASE = 3.0
"""For giving a lease back: whoever waits for it waits for little more."""
RELEASED = RELEASE + 2.0
"""For the renewer's word that it is given back."""
CANCEL = 0.8
"""For the renewer to leave the queue when nobody wants the lock any more."""
ANSWER = 15.0
"""Beyond the wait for a lock: after that a renewer that says nothing is given up."""
