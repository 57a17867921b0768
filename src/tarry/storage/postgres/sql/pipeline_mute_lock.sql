-- Whoever mutes, mutes alone; who reads mutes does not wait.
lock table tarry.anomaly_mute in share row exclusive mode
