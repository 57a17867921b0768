-- Serialize writers of mutes; readers do not wait.
lock table tarry.anomaly_mute in share row exclusive mode
