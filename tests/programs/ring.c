/* A message goes once around all tasks, then everybody sums up the ranks. */
#include <mpi.h>
#include <stdio.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    int rank, size, token = 0, sum = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (argc > 1 && rank == 1)
        MPI_Abort(MPI_COMM_WORLD, 13), pause();
    if (rank == 0) {
        MPI_Sendrecv(&token, 1, MPI_INT, 1 % size, 0, &token, 1, MPI_INT, size - 1, 0, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
    } else {
        MPI_Recv(&token, 1, MPI_INT, rank - 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        token++;
        MPI_Send(&token, 1, MPI_INT, (rank + 1) % size, 0, MPI_COMM_WORLD);
    }
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    printf("task %d of %d: token %d, sum %d\n", rank, size, token, sum);
    MPI_Finalize();
    return 0;
}
