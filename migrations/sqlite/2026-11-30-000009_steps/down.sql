DROP TABLE leasehold_steps;
DROP TABLE leasehold_adapters;
