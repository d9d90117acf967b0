"""Authorization of users: the clusters that they may enter, and the requests that they may send."""
