DROP TABLE leasehold_attempts;
DROP TABLE leasehold_runs;
